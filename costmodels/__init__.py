"""The cost models: memory, traffic and time as formulas of plain numbers."""
