"""torchvision's compiled operators: suppression, pooled regions, deformable convolution."""
