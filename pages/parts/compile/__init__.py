"""The cards of the page torch.compile."""
