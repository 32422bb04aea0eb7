"""The verdict on two traces: the rule compares runs at two precisions instead of using a tolerance."""
