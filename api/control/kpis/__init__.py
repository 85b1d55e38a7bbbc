"""Key figures, as folds over the event log: pure, bounded, and absent where nothing is known."""
