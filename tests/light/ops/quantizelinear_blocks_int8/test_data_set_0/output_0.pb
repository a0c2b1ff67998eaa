Ji;ú{pâKGR)q"B+qsBJðtvCLF|-3&FþDU)dCH-)ùH@smQEu1C<(FpLZ90J}Dyo0>
:ou