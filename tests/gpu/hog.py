"""Takes the device's memory but for the given bytes, says what is free, and gives it back at a line on its input."""

import sys

from served import DeviceHog

hog = DeviceHog()
hog.fill(int(sys.argv[1]))
print(hog.free_bytes(), flush=True)
sys.stdin.readline()
hog.release()
