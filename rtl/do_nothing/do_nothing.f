# Kernel that measures what a call costs apart from what a kernel does.
do_nothing/do_nothing_kernel.v
