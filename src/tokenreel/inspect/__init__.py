"""Look at what the other rooms made: show, verify, repair, prepare. Read by none of them."""
