"""localazure: the parts of Azure that a Functions app uses, as one local runtime.

Each part implements its service's wire protocol for the unmodified SDKs and keeps its state in one
folder. No module imports an app: the Functions host loads an app's folder, as on Azure.
"""
