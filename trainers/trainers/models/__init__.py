"""The networks that come with the trainers."""
