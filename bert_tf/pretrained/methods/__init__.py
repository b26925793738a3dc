"""What a loaded model can be asked: the methods of `Pretrained`, a module for each subject."""
