"""The content of pipeline.yml, deploy.yml and queues.yml."""
