"""AmlCompute clusters, and which nodes a job gets."""
