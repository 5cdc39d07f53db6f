"""Sends dead-lettered work again, or puts it back."""
