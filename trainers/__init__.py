"""Torch programs that run on the cluster: alone, under torchrun, mpirun or Azure ML's launcher.

They know folders and environment variables, nothing of Azure Functions or of any Azure SDK.
"""
