"""The methods of `Pretrained`, grouped by what they do: one module for each group."""
