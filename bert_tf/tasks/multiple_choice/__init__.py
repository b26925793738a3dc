"""Multiple choice: which of four endings continues a text (SWAG, paper section 4.4)."""
