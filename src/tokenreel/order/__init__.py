"""Which row comes when: position → (source, epoch, row) in closed form, and back."""
