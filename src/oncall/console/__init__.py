"""What a front end shows and asks: sessions on recordings or running jobs, without a terminal."""
