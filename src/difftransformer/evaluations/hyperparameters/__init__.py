"""What runs are made with (DIFF paper, tables 9 and 10): nothing is measured."""
