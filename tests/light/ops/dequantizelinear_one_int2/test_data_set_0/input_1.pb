
JA,