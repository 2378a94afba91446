"""What a front end shows and asks: sessions on recordings or on running jobs, without a terminal."""
