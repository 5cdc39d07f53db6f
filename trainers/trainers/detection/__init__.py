"""Object detection and instance segmentation: COCO annotations, torchvision's R-CNNs, mean AP."""
