"""Model folders, and predictions with them."""
