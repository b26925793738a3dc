"""The model, its run and its teacher."""
