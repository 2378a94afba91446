"""A training cluster: ranks that compute, meet in NCCL operations and wait for one another.

scenario, fault     what is asked for
cluster             ranks, groups and where they run; schedule: the operations of a step (1F1B)
play, meeting       who waits for whom, step after step
effects             what a fault does; disturbance: what healthy training does
algorithm           how far data gets in a ring or tree when somebody has stopped
operations, transfers   meetings as rows; record: what was seen of them
measured/           devices and hosts around it
"""
