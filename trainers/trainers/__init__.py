"""Torch programs that run on the cluster: alone, under torchrun, mpirun or Azure ML's launcher.

They know folders and environment variables, nothing of Azure Functions or of any Azure SDK.

    train, evaluate, pack    the programs: python -m trainers.train
    score                    the scoring script of an online endpoint
    loop                     the training loop
    warm_start               the weights that training begins with
    outputs, failures        results, and failures as error.json and exit code
    tracing                  the span of a training, below that of its run
    settings, plugins        the command line and its checks; a user's own models and datasets
    data                     datasets, shards, and the order in which samples are trained on
    tasks                    losses and scores: classification, detection, a user's own
    models                   the networks that come with the trainers
    detection                boxes and masks, with torchvision
    parallelism              ranks, and how a network is spread over them
    checkpointing            the state of a run on disk, saved and loaded
    reports                  numbers of a run
    serving                  the model folder, and the programs that load it
"""
