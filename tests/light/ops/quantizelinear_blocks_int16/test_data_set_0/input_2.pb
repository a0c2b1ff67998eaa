J~	êC´sGK:˜T»oÒU¸
J"F×¹@§EnXÄ3³j;Wï¶&9mV‘p©
Õ1ˆ_$ª=ƒ*lúTQ]>8eŸXö;úckMy*di<ZXJÔ:YZvhË&beR=&(à$udMdw}M)óµgj