"""What is measured around a training: NICs, GPUs, hosts, probes, and the faults that show there.

machine             what nodes can do; condition, quantities: how it changes over time
case, faults/       what each fault changes; benign: what healthy machines show, too
pace                what the training feels; traffic: what it sends through NICs
nics, gpus, hosts, pings, devices   the tables; sampling: when; record: all of it, written
"""
