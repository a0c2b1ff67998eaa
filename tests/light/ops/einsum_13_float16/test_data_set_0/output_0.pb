
J`S