"""`localazure up`: prepares the environment, and keeps the parts running."""
