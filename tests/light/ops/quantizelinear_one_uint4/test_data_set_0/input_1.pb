
Ju1