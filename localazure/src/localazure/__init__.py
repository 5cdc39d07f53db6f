"""localazure: the parts of Azure that a Functions app leans on, as one local runtime.

Every part speaks its service's wire protocol to the unmodified SDK and keeps its state in one
folder. Nothing here imports an app: the Functions host loads an app's folder, as Azure's does.
"""
