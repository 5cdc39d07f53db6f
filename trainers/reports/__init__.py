"""What a run tells: numbers, pictures, and where they go."""
