
JBAAô@_AxAA