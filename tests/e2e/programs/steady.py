"""Forty steps of 30 ms."""

import time

import wanbench

for _ in range(40):
    time.sleep(0.03)
    wanbench.step()
