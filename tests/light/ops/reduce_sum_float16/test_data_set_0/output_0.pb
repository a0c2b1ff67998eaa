
JHM