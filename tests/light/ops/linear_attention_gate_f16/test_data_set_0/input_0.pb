
Jx[Fb´XÉ†ÊŠB¿ŸÈ×¼ŒÉñ2¦ÉrGÉ0HDMóÁøÃ„¼ÀIEÞGYAtA/HWBìHÉDëD–LÙCu¤÷JÇÄÔ3aÆ!Ì?JE;´ÏJh=Ñ;HóÉšJâ¿,Èa@ñJ¼	@=ÊLÓÇÝÃqÈ=5~Ã£J