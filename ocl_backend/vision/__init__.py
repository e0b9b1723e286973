"""torchvision's compiled operators: registered for the device, declared where none are loaded."""
