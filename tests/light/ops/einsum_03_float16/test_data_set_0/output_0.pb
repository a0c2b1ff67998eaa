
J€M