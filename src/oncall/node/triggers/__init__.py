"""When a closer look at the network is worth it: few looks, where and when a step is held up.

After Vedrfolnir III-C2: a threshold of round trips for each step, a budget of detections spread
over the time that the step should take, what is left handed to the flow that is waited for, and a
stalled flow detected at once. Pure: the caller passes the time and sends the packets.
"""
