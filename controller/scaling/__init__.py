"""How many replicas there shall be: the rule is pure, a shell asks and orders."""
