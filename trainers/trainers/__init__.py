"""Torch programs for the cluster. They run alone, under torchrun, mpirun or Azure ML's launcher.

They use folders and environment variables only, neither Azure Functions nor an Azure SDK.

    train, evaluate, pack    the programs: python -m trainers.train
    score                    the scoring script of an online endpoint
    loop                     the training loop
    warm_start               the weights that training begins with
    outputs, failures        results, and failures as error.json and exit code
    tracing                  the span of a training, a child of its run's span
    settings, inputs         the command line and its checks; the data and the task that it names
    plugins                  a user's own models, datasets, optimizers and augmentations
    data                     datasets, shards, and the order of the samples
    tasks                    losses and scores: classification, detection, a user's own
    vision, small_resnet     torchvision and timm; networks for small images
    detection                boxes and masks, with torchvision
    parallelism              ranks, and the distribution of a network over them
    checkpointing            the state of a run on disk, saved and loaded
    reports                  the metrics, errors and speed of a run
    serving                  the model folder, and the programs that load it
"""
