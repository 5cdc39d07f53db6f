"""The app's I/O: triggers, activities, and the clients that they use."""
