"""What is kept: immutable token stores, written once, opened in constant time.

Nothing here imports more than the standard library and numpy.
"""
