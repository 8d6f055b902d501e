"""What comes in: sources, tokenizers, chats. Nothing is imported until it is asked for."""
