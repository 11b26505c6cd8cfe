"""Ways to make two distributions of ż agree, and to refine what comes out: pure functions of arrays."""
