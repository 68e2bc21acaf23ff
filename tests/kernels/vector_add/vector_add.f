# Test kernel of the simulated card.
vector_add/vector_add_kernel.v
