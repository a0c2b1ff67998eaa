J?C<bt <doGTJ}j=}S+FD7)kwn!P
R['Gt7c?4o#pw