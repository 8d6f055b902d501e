"""Contracts 001 and 002: token caches and chats as the package niels_gpt wants them."""
