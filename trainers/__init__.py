"""Torch programs that run on the cluster: alone, under torchrun, mpirun or Azure ML's launcher.

They know folders and environment variables, nothing of Azure Functions or of any Azure SDK.

    train, evaluate, pack    the programs: python -m trainers.train
    score                    the scoring script of an online endpoint
    loop                     what a run does, step by step
    settings, plugins        what a command line may say; a user's own models and datasets
    data                     datasets, shards, and the order in which samples are trained on
    models                   the networks that come with the trainers
    detection                boxes and masks, with torchvision
    parallelism              ranks, and how a network is spread over them
    checkpointing            the state of a run on disk, and the way back from it
    reports                  numbers and pictures, and where they go
    serving                  a trained model as a folder, and who loads it
"""
