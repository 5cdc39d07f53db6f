"""Reads and checks the files of pipelines, queues, jobs and deployments."""
